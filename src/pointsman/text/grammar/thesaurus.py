"""Everyday synonyms in English, Russian and Chinese, written for this package.

Semicolons separate groups of words that are interchangeable in most queries. A word after ``-`` is suggested for the
others but has no synonyms itself, as it often means something else: *hard* is *difficult*, but not in a *hard drive*.
The same holds for phrases, whose words are joined by ``_``. English and Russian words are recognised in every inflected
form and suggested in the base form, as search stems them.
"""

from __future__ import annotations

import re
from functools import cache

from pointsman.text import DEFAULT_ANALYZER, fold

ENGLISH = """
    buy purchase acquire; sell vend; price cost -fee; cheap inexpensive affordable; expensive costly pricey;
    fast quick rapid speedy; slow sluggish; big large huge; small little tiny; error failure -fault -bug;
    bug defect flaw -error;
    fix repair mend; broken damaged faulty; problem issue -trouble; begin start commence; -end finish conclude;
    -stop halt cease; -help assist aid -support; answer reply response; choose select -pick; show -display -present;
    hide conceal; find locate discover; search lookup retrieval; remove delete erase; -add append -insert;
    change modify alter; update -upgrade refresh; create make build; destroy demolish ruin; increase -raise -grow;
    decrease reduce -lower lessen; improve enhance -better; worsen deteriorate; car automobile -vehicle; truck lorry;
    bicycle bike; -plane airplane aircraft; -ship -vessel boat; road street route; trip journey travel voyage;
    holiday vacation; apartment -flat; building edifice structure; room chamber; doctor physician medic;
    illness disease sickness; medicine -drug medication; pain ache; injury wound harm; therapy treatment;
    cure remedy; child kid youngster; baby infant; parent guardian; friend companion pal; employee worker staff;
    boss manager supervisor; job occupation employment; salary wage -pay; company -firm -business; customer client;
    seller vendor merchant; shop -store; market marketplace; money cash funds; loan credit; debt liability;
    tax -duty levy; contract agreement; law statute legislation; lawyer attorney solicitor; court tribunal;
    crime offence; police cops; prison jail; teacher instructor educator; student pupil learner; lesson -class;
    exam -test examination; article paper essay; author writer; picture image photo photograph; movie film;
    song tune; music melody; computer pc -machine; laptop notebook; phone telephone mobile; screen -display -monitor;
    keyboard keypad; program software app -application; -code source_code; -function method -routine;
    folder directory; -file document; password passphrase; login sign_in; logout sign_out;
    setting option preference configuration; install set_up; launch -run execute; crash -hang -freeze;
    website site webpage; server -host; database data_store; backup copy; download fetch; upload send; email mail;
    disconnect unplug detach; safe secure; dangerous hazardous risky; danger hazard risk; attack assault;
    protect defend guard; encrypt encipher; rule regulation; permission authorization consent; forbid prohibit ban;
    allow permit; need require; want desire wish; use utilize employ; method -way -approach technique;
    tool instrument utility; device appliance gadget; battery accumulator; electricity -power; fuel gas petrol;
    energy -power; -cold chilly; -hot warm; weather climate; rain rainfall; snow snowfall; storm tempest;
    wind breeze; flood inundation; earthquake quake; animal beast creature; dog canine; cat feline;
    food nourishment -meal; -drink beverage; meat flesh; garbage trash rubbish -waste; -clean wash; dirty filthy;
    empty vacant; -new recent modern; -old ancient aged; young youthful; easy simple effortless;
    difficult -hard -tough; important significant essential; useful helpful; useless pointless;
    correct -right accurate; wrong incorrect mistaken; false fake bogus; strange -odd unusual; common usual ordinary;
    rare uncommon scarce; famous renowned celebrated; beautiful pretty lovely; ugly hideous; happy glad joyful;
    sad unhappy sorrowful; angry furious -mad; afraid scared frightened; brave courageous; clever smart intelligent;
    stupid foolish dumb; -rich wealthy; -poor needy; strong powerful robust; weak feeble frail; -quiet silent;
    loud noisy; distant -far -remote; speed velocity; weight mass; size dimension; height altitude; amount quantity;
    type -kind -sort; -goal aim objective; -result outcome consequence; -cause reason; effect impact influence;
    benefit advantage; drawback disadvantage downside; idea concept notion; opinion -view; decision choice;
    discussion debate; news tidings; war conflict; peace truce; country nation; government administration;
    election -vote poll; city town; village hamlet
    """

RUSSIAN = """
    купить приобрести; продать реализовать; покупка приобретение; продажа сбыт; цена стоимость;
    дешёвый недорогой доступный; дорогой дорогостоящий; быстрый скорый стремительный; быстро -скоро;
    медленный неторопливый; большой крупный огромный; маленький малый небольшой; ошибка сбой неисправность;
    баг дефект ошибка; исправить починить устранить; ремонт починка; сломать повредить; проблема неполадка трудность;
    начать приступить; конец окончание завершение; закончить завершить; прекратить остановить;
    помощь поддержка содействие; помочь поддержать; ответ отклик; вопрос -запрос; выбрать подобрать; выбор подбор;
    показать отобразить; скрыть спрятать; найти отыскать обнаружить; поиск розыск; удалить стереть убрать;
    добавить прибавить; изменить поменять модифицировать; изменение правка; обновить освежить; обновление апдейт;
    создать сделать построить; разрушить уничтожить; увеличить повысить; увеличение рост;
    уменьшить снизить сократить; улучшить усовершенствовать; ухудшить испортить; автомобиль машина авто;
    грузовик фура; велосипед байк; самолёт авиалайнер; корабль -судно; дорога -путь -трасса; поездка путешествие;
    отпуск каникулы; дом жилище; квартира жильё; здание строение сооружение; комната помещение; врач доктор медик;
    болезнь заболевание недуг; лекарство препарат медикамент; боль болезненность; травма повреждение;
    лечение терапия; больница клиника стационар; ребёнок дитя малыш; младенец грудничок; друг товарищ приятель;
    женщина -дама; сотрудник работник служащий; начальник руководитель шеф; зарплата заработок оклад;
    компания фирма предприятие; клиент заказчик покупатель; продавец торговец; магазин -лавка; рынок -базар;
    деньги средства финансы; кредит заём ссуда; долг задолженность; налог -сбор пошлина; договор контракт соглашение;
    закон законодательство; юрист адвокат правовед; суд трибунал; преступление правонарушение; тюрьма -колония;
    учитель преподаватель педагог; ученик школьник учащийся; студент учащийся; урок занятие; экзамен испытание зачёт;
    статья публикация; автор писатель сочинитель; картинка изображение рисунок; фотография снимок фото;
    фильм кино кинокартина; песня -композиция; музыка мелодия; компьютер пк эвм; ноутбук лэптоп;
    телефон смартфон мобильный; экран дисплей монитор; программа -приложение софт; -код исходник;
    функция процедура -метод; папка каталог директория; файл документ; пароль секретный_код; пользователь юзер;
    настройка -параметр опция; установить инсталлировать; -установка инсталляция; запустить выполнить; запуск -старт;
    -сеть интернет; сайт веб-сайт; сервер -хост; резервный -запасной; скачать загрузить; почта корреспонденция;
    сообщение уведомление; подключить присоединить; отключить выключить; включить активировать;
    безопасный защищённый; безопасность защита; опасный рискованный; опасность угроза риск; атака нападение;
    защитить обезопасить; шифрование криптография; правило -норма; разрешение позволение; разрешить позволить;
    запретить воспретить; запрет запрещение; нужно необходимо требуется; использовать применять;
    использование применение; способ -метод -приём; инструмент средство утилита; устройство -прибор аппарат;
    двигатель мотор; батарея аккумулятор; электричество электроэнергия; топливо горючее; тепло теплота;
    холод стужа мороз; погода климат; дождь ливень осадки; снег снегопад; буря шторм; ветер бриз; пожар возгорание;
    наводнение потоп; лес чаща; животное зверь; собака пёс; кот кошка; еда -пища -питание; напиток питьё;
    мусор отходы; грязный испачканный; пустой порожний; -новый -свежий современный; -старый древний ветхий;
    трудный сложный тяжёлый; важный значимый существенный; бесполезный напрасный; правильный верный корректный;
    неправильный неверный ошибочный; -настоящий подлинный; поддельный фальшивый; странный необычный;
    -обычный обыкновенный типичный; редкий нечастый; известный знаменитый -популярный; красивый прекрасный;
    счастливый радостный; грустный печальный; злой сердитый; смелый храбрый отважный; умный сообразительный;
    глупый неумный; богатый состоятельный; бедный неимущий; сильный -мощный крепкий; слабый хилый; тихий бесшумный;
    громкий шумный; близко рядом недалеко; далеко вдали; скорость быстрота; вес -масса; размер величина габарит;
    количество число; -вид тип разновидность; список перечень; цель -задача; результат итог; причина -повод;
    последствие следствие; влияние воздействие; преимущество -плюс достоинство; недостаток -минус изъян;
    идея мысль концепция; мнение точка_зрения; обсуждение дискуссия; собрание совещание заседание; новости -известия;
    война конфликт; страна государство; правительство -власть; царь монарх; деревня село посёлок
    """

CHINESE = """
    购买 -买 采购; 出售 -卖 销售; 价格 价钱 -费用; 便宜 廉价 实惠; 昂贵 -贵 高价; 快速 迅速 -高速; 缓慢 -慢;
    巨大 庞大; 微小 细小; 错误 差错 报错; 故障 毛病 失灵; 缺陷 漏洞 瑕疵; 修理 维修 修复; 损坏 破损; 问题 难题 疑问;
    开始 -启动; 结束 终止 完结; 停止 中止; 帮助 协助 援助; 回答 答复 回复; 选择 挑选 选取; 显示 展示 呈现; 隐藏 隐蔽;
    寻找 查找 搜寻; 搜索 检索 -查询; 删除 移除 清除; 添加 增加 新增; 修改 更改 变更; 更新 升级; 创建 建立 新建;
    破坏 毁坏; 提高 提升 增强; 降低 减少 下降; 改进 改善 优化; 汽车 轿车 车辆; 卡车 货车; 自行车 -单车 脚踏车;
    飞机 客机 -航班; 轮船 船舶; 火车 列车; 道路 公路 马路; 旅行 旅游 出行; 假期 休假; 房屋 房子 住宅; 公寓 住房;
    建筑 楼房; 医生 大夫 医师; 疾病 病症; -药品 药物 -药; 疼痛 -痛; 受伤 损伤; 治疗 医治 疗法; 医院 诊所;
    儿童 小孩 孩子; 婴儿 宝宝; 父母 双亲 家长; 朋友 好友; 丈夫 老公; 妻子 老婆 太太; 员工 职员 雇员;
    老板 -上司 -领导; -工作 职业; 工资 薪水 薪资; 公司 企业; 客户 顾客; 卖家 商家; 商店 店铺; 市场 集市;
    金钱 资金 -钱; 贷款 借款; 债务 欠款; 税收 税款; 合同 合约 协议; 法律 法规; 律师 法律顾问; 法院 法庭; 犯罪 违法;
    警察 公安; 监狱 牢房; 学校 院校; 老师 教师; 学生 学员; 考试 测验; 书籍 图书; 文章 论文; 作者 作家;
    图片 图像 照片; 电影 影片; 歌曲 -歌; 音乐 乐曲; 计算机 电脑; 笔记本电脑 手提电脑; 手机 移动电话; 电话 话机;
    屏幕 显示屏; 显示器 屏幕; 软件 -程序; -应用 应用程序; 代码 源码; 函数 -方法; 变量 -参数; 文件夹 -目录;
    -文件 文档; 密码 口令; 登录 -登陆; 注销 退出登录; 用户 使用者; 设置 配置 -选项; 安装 部署; 运行 执行; 崩溃 死机;
    -网络 互联网 因特网; 网站 网页 站点; 服务器 -主机; 数据库 资料库; -数据 资料; 备份 副本; 下载 -获取; 上传 传送;
    邮件 电邮 电子邮件; -消息 -信息 讯息; 连接 联接; 断开 -中断; 危险 风险; 攻击 袭击; 保护 防护; 加密 -编码;
    规则 规定; 权限 许可; 允许 -准许; 禁止 不准; 需要 必须; 使用 利用 采用; 办法 -方式 -方法; 工具 器具;
    设备 装置 仪器; 发动机 -引擎; 电池 蓄电池; 电力 电能; 燃料 燃油; 温度 气温; 天气 气候; 降雨 下雨; 降雪 下雪;
    暴风 风暴; 火灾 失火; 洪水 水灾; 地震 震灾; 海洋 大海; 河流 江河; 山脉 山岭; 动物 野兽; 食物 食品;
    饮料 饮品; 垃圾 废物 废弃物; 清洁 清洗; 肮脏 -脏; 崭新 -全新; 古老 古代; 年轻 年青; 简单 -容易; 困难 艰难;
    重要 -关键; 有用 实用; 正确 准确; 虚假 伪造; 奇怪 古怪; 普通 -一般; 罕见 少见; 著名 知名 有名; 美丽 漂亮;
    快乐 高兴 开心; 悲伤 难过 伤心; 愤怒 生气; 害怕 恐惧; 勇敢 英勇; 聪明 机智; 愚蠢 -笨; 富裕 富有; 贫穷 贫困;
    强大 强劲; 虚弱 衰弱; 安静 宁静; 吵闹 嘈杂; 速度 -速率; 重量 -体重; 尺寸 -大小; 数量 数目; 列表 清单; 计划 规划;
    目标 -目的; 结果 成果; 原因 缘由; 影响 -作用; 优点 长处 好处; 缺点 短处 -不足; 想法 -主意; 意见 看法; 决定 决策;
    讨论 探讨; 会议 大会; 新闻 -消息; 战争 战事; 和平 -太平; 国家 国度; 政府 -当局; 国王 君主; 选举 投票; 城市 都市;
    村庄 乡村; 环保 环境保护; 番茄 西红柿; 土豆 马铃薯; 玉米 包谷
    """


@cache
def _table() -> dict[str, tuple[str, ...]]:
    table: dict[str, dict[str, None]] = {}
    for group in f"{ENGLISH};{RUSSIAN};{CHINESE}".split(";"):
        words = [word.replace("_", " ") for word in group.split()]
        for word in words:
            if word[0] != "-" and " " not in word:
                plainest = sorted(words, key=lambda synonym: synonym[0] == "-")
                synonyms = (synonym.lstrip("-") for synonym in plainest if _key(synonym) != _key(word))
                table.setdefault(_key(word), {}).update(dict.fromkeys(synonyms))
    return {word: tuple(synonyms) for word, synonyms in table.items()}


@cache
def longest_han() -> int:
    """Return the length of the longest Chinese word with synonyms, in characters."""
    return max(len(word) for word in _table() if word > "\u2fff")


_ADJECTIVE = re.compile("(?:н|ск)(?:ый|ий|ая|ое|ые|ие|ого|ому|ой|ом|ую|ым|им|ых|их|ыми|ими)$")


def _key(word: str) -> str:
    """Return the key shared by the inflected forms of a word: its stem; in Chinese, the word itself."""
    key = fold(word)
    if not key.isalpha() or key > "\u2fff":
        return key
    # машина and машинное have the same stem but are different words.
    return "".join(DEFAULT_ANALYZER.tokens(key)) + "!" * bool(_ADJECTIVE.search(key))


def synonyms(word: str) -> tuple[str, ...]:
    """Return synonyms for a word in any inflected form; an empty tuple for most words.

    >>> synonyms("Cars"), synonyms("машины"), synonyms("电脑"), synonyms("tantivy"), synonyms("hard")
    (('automobile', 'vehicle'), ('автомобиль', 'авто'), ('计算机',), (), ())
    """
    return _table().get(_key(word), ())
